"""Looks at a deployment again and again: samples, judges, probes as a canary, and tells people and Prometheus.

    sampler   asks every instance once, into memory
    window    keeps as many samples as patience needs, and makes evidence of the oldest and the newest
    ways      the ways that a request can go
    canary    sends one when its time has come, or when something is suspicious
    watcher   one look after the other: sample, judge, confirm
    sight     what one look showed, as a record
    exporter  the newest sight as Prometheus metrics
    daemon    the whole as a process for systemd
    alerts    the alert rules that rest on these metrics, `alerts.yml`

Stands beside `pdctl.recover` in the import rules: it reads and probes, and never restarts anything.
"""
