// RUN: %exla-opt %s --memory-limit=500KB -o %t 2>&1 | filecheck %s
// RUN: %exla-opt %s --memory-limit=2.5MB -o - 2>&1 | filecheck %s --check-prefix=FITS
// RUN: %exla-opt %s --pareto | filecheck %s --check-prefix=PARETO
// RUN: %exla-opt %s --diagnose | filecheck %s --check-prefix=DIAGNOSE

// The gradient of a maximum over windows that overlap: in slices, all rows would be gathered. The module goes out as it
// came, and the figure is that of what goes out.

// CHECK: warning: does not fit into 500KB; the smallest limit that was reached is 1.9{{.}}MB
// CHECK-SAME: due to the module being left unchanged: in slices, its devices would send more
// CHECK: EX312

// FITS: remark: fits into 2.5MB, without a split: 1.9{{.}}MB

// No limit would have the slices written, so none are offered.

// PARETO: 1.9{{.}}MB, compiled 1 x unsplit
// PARETO-NEXT: time:

// DIAGNOSE: this is the program of one device, by which each would need or send more; spread by XLA, the original needs 1.9{{.}}MB on each of 8 devices
// DIAGNOSE: with --memory-limit=9{{.*}}KB exla-opt would do this:
// DIAGNOSE-NEXT: due to the module being left unchanged: in slices, its devices would send more

module attributes {mhlo.num_partitions = 8 : i32} {
  sdy.mesh @mesh = <["d"=8]>
  func.func @main(%x: tensor<8192x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}, {}]>}, %g: tensor<4096x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}, {}]>}) -> tensor<f32> {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %1 = stablehlo.sine %x : tensor<8192x64xf32>
    %5 = "stablehlo.select_and_scatter"(%1, %g, %zero) <{padding = dense<[[0, 1], [0, 0]]> : tensor<2x2xi64>, window_dimensions = array<i64: 3, 1>, window_strides = array<i64: 2, 1>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    }, {
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %c : tensor<f32>
    }) : (tensor<8192x64xf32>, tensor<4096x64xf32>, tensor<f32>) -> tensor<8192x64xf32>
    %7 = stablehlo.exponential %5 : tensor<8192x64xf32>
    %6 = stablehlo.reduce(%7 init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<8192x64xf32>, tensor<f32>) -> tensor<f32>
    return %6 : tensor<f32>
  }
}
