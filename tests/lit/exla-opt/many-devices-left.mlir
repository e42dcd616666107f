// RUN: %exla-opt %s --memory-limit=1.5MB -o %t 2>&1 | filecheck %s
// RUN: %exla-opt %s --memory-limit=1.5MB --summary -o %t 2>&1 | filecheck %s --check-prefix=SUMMARY
// RUN: %exla-opt %s --memory-limit=64MB -o %t 2>&1 | filecheck %s --check-prefix=FITS
// RUN: not %exla-opt %s --memory-limit=1.5MB --strict --quiet -o %t 2>&1 | filecheck %s --check-prefix=STRICT
// RUN: %exla-opt %s --size-threshold=1MB --split-size=1MB -o %t 2>&1 | filecheck %s --check-prefix=SIZES

// A module without a program of one device is left unchanged, and exla-opt says so under a limit too.

// CHECK: warning: does not fit into 1.5MB; the smallest limit that was reached is {{[0-9.]+}}MB (as XLA compiles it for this machine's CPU), due to the module being left unchanged: its shardings are GSPMD's
// CHECK: remark: 2048x2048xf32 (16.8MB) not split: its shardings are GSPMD's

// SUMMARY: does not fit into 1.5MB
// SUMMARY: MB, compiled
// SUMMARY: Not changed

// FITS: remark: fits into 64MB, without a split

// STRICT: does not fit into 1.5MB

// What is predicted for all devices together is no figure of one.

// SIZES: not split: its shardings are GSPMD's
// SIZES-NOT: predicted

module @left attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%x: tensor<2048x64xf32> {mhlo.sharding = "{maximal device=3}"}, %y: tensor<2048x64xf32> {mhlo.sharding = "{replicated}"}) -> tensor<2048xf32> {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [1] : (tensor<2048x64xf32>, tensor<2048x64xf32>) -> tensor<2048x2048xf32>
    %1 = stablehlo.exponential %0 : tensor<2048x2048xf32>
    %2 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<2048x2048xf32>, tensor<f32>) -> tensor<2048xf32>
    return %2 : tensor<2048xf32>
  }
}
