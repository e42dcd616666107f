"""`python -m exla_opt` is exla-opt."""

from exla_opt.cli.opt import main

main(prog_name="exla-opt")
