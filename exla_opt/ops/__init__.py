"""Op knowledge by family. The one table, and the entrance, is `exla_opt.ops.rules`."""
