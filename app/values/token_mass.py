"""Mass: what a text weighs, without a tokenizer library."""


def estimate_tokens(text: str) -> int:
    """Weigh `text`: ceil(characters / 4), in tokens."""
    return -(-len(text) // 4)
