"""Functions of our own after public reports of programs that ran out of memory."""
