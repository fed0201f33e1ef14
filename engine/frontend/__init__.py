"""Between HTTP and the scheduler: tokenizer, chat template, detokenizer, request registry, disconnects."""
