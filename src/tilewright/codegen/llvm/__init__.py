"""The LLVM back end: compiling IR text, caching and loading object code."""
