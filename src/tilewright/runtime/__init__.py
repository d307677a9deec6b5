"""Running compiled code: the native thread pool, memory, timers and the plan executor."""
