"""One study from several hosts: identity, pooled effects, reports."""
