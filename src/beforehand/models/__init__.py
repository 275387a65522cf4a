"""Model adapters: each speaks one wire format directly. Loaded by name on first use."""
