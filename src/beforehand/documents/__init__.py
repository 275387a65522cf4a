"""Files that people write, as data that knows where in its file everything stands, and what is wrong with them."""
