// RUN: %exla-opt %s --memory-limit=500KB -o %t 2>&1 | filecheck %s
// RUN: %exla-opt %s --memory-limit=1.5MB -o - 2>&1 | filecheck %s --check-prefix=FITS

// Differences of neighbouring rows: in slices, all rows would be gathered. The module goes out as it came, and the
// figure is that of what goes out.

// CHECK: warning: does not fit into 500KB; the smallest limit that was reached is 52{{.}}KB
// CHECK-SAME: due to the module being left unchanged: in slices, its devices would send more
// CHECK: EX312

// FITS: remark: fits into 1.5MB, without a split: 52{{.}}KB

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
