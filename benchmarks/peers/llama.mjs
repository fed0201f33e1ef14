// llama.cpp through node-llama-cpp. One JSON object a line in: {prompts: [[id]], tokens}; out: {times: [[seconds]]},
// of each token since the prompts came. Arguments: the folder with node_modules, the GGUF, threads, sequences.
import {createRequire} from "node:module";
import {createInterface} from "node:readline";
import {pathToFileURL} from "node:url";

const [folder, modelPath, threads, sequences] = process.argv.slice(2);
const found = createRequire(`${folder}/`).resolve("node-llama-cpp");
const {getLlama} = await import(pathToFileURL(found).href);
const llama = await getLlama({build: "never", gpu: false, maxThreads: Number(threads), logLevel: "error"});
const model = await llama.loadModel({modelPath});
const context = await model.createContext({
    sequences: Number(sequences), contextSize: 1024, threads: Number(threads), batchSize: 512,
});

async function generate(sequence, prompt, tokens, started) {
    await sequence.clearHistory();
    const times = [];
    for await (const _ of sequence.evaluate(prompt, {temperature: 0, yieldEogToken: true})) {
        times.push((performance.now() - started) / 1000);
        if (times.length === tokens) break;
    }
    return times;
}

const all = Array.from({length: Number(sequences)}, () => context.getSequence());
console.log(JSON.stringify({ready: true}));
for await (const line of createInterface({input: process.stdin})) {
    const {prompts, tokens} = JSON.parse(line);
    const started = performance.now();
    const times = await Promise.all(prompts.map((prompt, index) => generate(all[index], prompt, tokens, started)));
    console.log(JSON.stringify({times}));
}
process.exit(0);
