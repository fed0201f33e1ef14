"""The long form: `python -m tests.judgements [--count 300] [--results judgements.jsonl] [--model smollm2]`.

Brings up each system, lets each kind of clients come, and judges them again and again as `pdctl diagnose` does. Each
judgement is a line in the result file; a later call goes on where the file ends, while `engine/` and `pdctl/` are
unchanged. At the end: what was said how often, and how high the rate of false alarms can be at most. The exit code is 1
with a false alarm, whose evidence is kept.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from pdctl.drill import provenance
from pdctl.drill.result_file import ResultFile
from tests.conftest import smollm2_candidate
from tests.judgements.judging import Judgement, folder_of, judged, pending, served, upper_bound
from tests.judgements.systems import Clients, System
from tests.serving.served import served_by_pdctl
from tests.tiny_model import write_tiny_model

IN_A_ROW = 9


def sitting(file: ResultFile[Judgement], wanted: Iterable[tuple[System, Clients, int]], model: Path) -> None:
    """Judge what is wanted, each system brought up once for all that follows on it."""
    for system, visits in groupby(wanted, key=lambda item: item[0]):
        home = Path(tempfile.mkdtemp(prefix="judgements-"))
        with served_by_pdctl(home, model, *system.flags):
            folder, deployment = folder_of(home)
            for _, clients, count in visits:
                with served(deployment, clients):
                    for _ in range(count):
                        file.append(one := judged(folder, deployment, system, clients))
                        print(told(one), flush=True)


def told(one: Judgement) -> str:
    """Return a line about one judgement."""
    alarm = f"   FALSE ALARM, see {one.kept}" if one.is_alarm else ""
    return f"{one.system:10} {one.clients:10} {one.took_s:5.1f} s  {one.verdict} {' '.join(one.firm)}{alarm}"


def print_summary(judgements: Sequence[Judgement]) -> None:
    """Print a line for each system and kind of clients, and the bound of the rate."""
    for cell, group in groupby(sorted(judgements, key=_cell), key=_cell):
        said = Counter(" ".join((item.verdict, *item.firm)) for item in group)
        print(f"{cell[0]:10} {cell[1]:10}", ", ".join(f"{text}: {count}" for text, count in said.most_common()))
    alarms, commits = sum(item.is_alarm for item in judgements), {str(item.commit) for item in judgements}
    if judgements:
        bound = upper_bound(alarms, len(judgements))
        print(f"{alarms} false alarms in {len(judgements)} judgements, commit {', '.join(sorted(commits))}: "
              f"a rate of at most {bound:.1%}, 19 times out of 20")  # fmt: skip


def _cell(one: Judgement) -> tuple[str, str]:
    return one.system, one.clients


def main() -> int:
    """Fill the file, and print what it holds of these sources."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--results", type=Path, default=Path("judgements.jsonl"))
    parser.add_argument("--model", choices=("tiny", "smollm2"), default="smollm2")
    options = parser.parse_args()
    file, code = ResultFile(options.results, Judgement), provenance.sources_hash()
    with tempfile.TemporaryDirectory(prefix="tiny-") as made:
        model = write_tiny_model(Path(made) / "model") if options.model == "tiny" else smollm2_candidate()
        sitting(file, pending(file.begin(), code, options.count, IN_A_ROW), model)
    done = [item for item in file.results() if item.code == code]
    print_summary(done)
    return 1 if any(item.is_alarm for item in done) else 0


if __name__ == "__main__":
    sys.exit(main())
