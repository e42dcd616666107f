// RUN: %exla-opt %s --memory-limit=500KB -o %t 2>&1 | filecheck %s
// RUN: %exla-run %t --compare %s 2>&1 | filecheck %s --check-prefix=RAN

// Differences of neighbouring rows, some of which are on the next device: it sends one row, as XLA does, and the rest is
// split.

// CHECK: remark: fits into 500KB, in slices of

// RAN: sent 260B 260B
// RAN: PASSED

module attributes {mhlo.num_partitions = 8 : i32} {
  sdy.mesh @mesh = <["d"=8]>
  func.func @main(%x: tensor<8192x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}, {}]>}) -> tensor<f32> {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = stablehlo.slice %x [1:8192, 0:64] : (tensor<8192x64xf32>) -> tensor<8191x64xf32>
    %1 = stablehlo.sine %0 : tensor<8191x64xf32>
    %2 = stablehlo.slice %x [0:8191, 0:64] : (tensor<8192x64xf32>) -> tensor<8191x64xf32>
    %3 = stablehlo.subtract %1, %2 : tensor<8191x64xf32>
    %4 = stablehlo.exponential %3 : tensor<8191x64xf32>
    %5 = stablehlo.multiply %4, %4 : tensor<8191x64xf32>
    %6 = stablehlo.reduce(%5 init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<8191x64xf32>, tensor<f32>) -> tensor<f32>
    return %6 : tensor<f32>
  }
}
