"""Serving by the Triton Inference Server: the backend (C++), the tokenizer's models, and the model repository."""
