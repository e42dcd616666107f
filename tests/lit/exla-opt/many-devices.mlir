// RUN: %exla-opt %s --size-threshold=64KB --split-size=32KB --remarks=passed 2>%t.err | filecheck %s
// RUN: filecheck %s --check-prefix=REMARK --input-file=%t.err
// RUN: %exla-opt %s --size-threshold=2MB --split-size=2MB | filecheck %s --check-prefix=KEPT
// RUN: %exla-opt %s --pareto | filecheck %s --check-prefix=PARETO
// RUN: %exla-opt %s --diagnose | filecheck %s --check-prefix=DIAGNOSE

// Each of four devices has 256 rows of the product, and makes them in slices; the signature stays.

// CHECK: sdy.mesh @mesh = <["d"=4]>
// CHECK: func.func public @main(%[[X:.*]]: tensor<1024x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}, {}]>}, %[[Y:.*]]: tensor<64x1024xf32>)
// CHECK: sdy.manual_computation(%[[X]], %[[Y]]) in_shardings=[<@mesh, [{"d"}, {}]>, <@mesh, [{}, {}]>] out_shardings=[<@mesh, [{"d"}]>] manual_axes={"d"}
// CHECK: stablehlo.while
// CHECK-NOT: tensor<256x1024xf32>
// CHECK: sdy.return

// REMARK: remark: 256x1024xf32 (1.05MB) on each of 4 devices split over dimension

// PARETO: --memory-limit  peak
// PARETO-NEXT: compiled
// PARETO: time: predicted for this machine's CPU, each of 4 devices, as multiples

// DIAGNOSE: peak {{[0-9.]+}}MB on each of 4 devices, as XLA compiles it
// DIAGNOSE: 1.05MB  256x1024xf32
// DIAGNOSE: 256x1024xf32 (1.05MB) on each of 4 devices split over dimension

// KEPT-NOT: sdy.manual_computation
// KEPT: tensor<1024x1024xf32>
// KEPT-NOT: sdy.manual_computation

module attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["d"=4]>
  func.func public @main(%x: tensor<1024x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}, {}]>}, %y: tensor<64x1024xf32>) -> tensor<1024xf32> {
    %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<1024x64xf32>, tensor<64x1024xf32>) -> tensor<1024x1024xf32>
    %1 = stablehlo.tanh %0 : tensor<1024x1024xf32>
    %z = stablehlo.constant dense<0.0> : tensor<f32>
    %2 = stablehlo.reduce(%1 init: %z) applies stablehlo.maximum across dimensions = [1] : (tensor<1024x1024xf32>, tensor<f32>) -> tensor<1024xf32>
    return %2 : tensor<1024xf32>
  }
}
