// RUN: %exla-opt %s --size-threshold=64KB --split-size=32KB --remarks=passed -o %t 2>&1 | filecheck %s
// RUN: %exla-run %t --compare %s 2>&1 | filecheck %s --check-prefix=RAN

// An argument, and a result, with rows that the devices do not divide: its shards are padded.

// CHECK: remark: 126x1024xf32 (516KB) on each of 8 devices split over dimension

// RAN: devices, each of them 8
// RAN: PASSED

module @m attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["d"=8]>
  func.func public @main(%x: tensor<1001x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}, {}]>},
                         %y: tensor<64x1024xf32>) -> tensor<1001xf32> {
    %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<1001x64xf32>, tensor<64x1024xf32>) -> tensor<1001x1024xf32>
    %1 = stablehlo.tanh %0 : tensor<1001x1024xf32>
    %z = stablehlo.constant dense<0.0> : tensor<f32>
    %2 = stablehlo.reduce(%1 init: %z) applies stablehlo.add across dimensions = [1] : (tensor<1001x1024xf32>, tensor<f32>) -> tensor<1001xf32>
    return %2 : tensor<1001xf32>
  }
}
