"""Beam search over plans of pipelines: where each stage is computed, and how (Anderson et al., 2021)."""
