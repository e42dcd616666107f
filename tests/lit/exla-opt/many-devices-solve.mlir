// RUN: %exla-opt %s --memory-limit=2.5MB -o %t 2>&1 | filecheck %s
// RUN: %exla-run %t --compare %s 2>&1 | filecheck %s --check-prefix=RAN

// A triangular system whose right-hand sides are spread over the devices: each device solves its own. XLA gathers all.

// CHECK: remark: fits into 2.5MB

// RAN: sent 4B 8.39MB
// RAN: PASSED

module attributes {mhlo.num_partitions = 8 : i32} {
  sdy.mesh @mesh = <["d"=8]>
  func.func @main(%factor: tensor<128x128xf32>, %points: tensor<16384x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}, {}]>}) -> tensor<f32> {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %eight = stablehlo.constant dense<8.0> : tensor<128x128xf32>
    %0 = stablehlo.iota dim = 0 : tensor<128x128xi32>
    %1 = stablehlo.iota dim = 1 : tensor<128x128xi32>
    %2 = stablehlo.compare EQ, %0, %1 : (tensor<128x128xi32>, tensor<128x128xi32>) -> tensor<128x128xi1>
    %3 = stablehlo.select %2, %eight, %factor : tensor<128x128xi1>, tensor<128x128xf32>
    %4 = stablehlo.slice %factor [0:128, 0:4] : (tensor<128x128xf32>) -> tensor<128x4xf32>
    %5 = stablehlo.dot_general %4, %points, contracting_dims = [1] x [1] : (tensor<128x4xf32>, tensor<16384x4xf32>) -> tensor<128x16384xf32>
    %6 = stablehlo.cosine %5 : tensor<128x16384xf32>
    %7 = "stablehlo.triangular_solve"(%3, %6) <{left_side = true, lower = true, transpose_a = #stablehlo<transpose NO_TRANSPOSE>, unit_diagonal = false}> : (tensor<128x128xf32>, tensor<128x16384xf32>) -> tensor<128x16384xf32>
    %8 = stablehlo.multiply %7, %7 : tensor<128x16384xf32>
    %9 = stablehlo.reduce(%8 init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<128x16384xf32>, tensor<f32>) -> tensor<f32>
    return %9 : tensor<f32>
  }
}
