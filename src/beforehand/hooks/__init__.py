"""Hooks: what one is (`hook`), which are registered (`registry`), and how they are asked (`dispatch`)."""
