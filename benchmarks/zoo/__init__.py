"""A zoo of programs as people write them, to judge predictions by; half of it no rule may be fitted to."""
