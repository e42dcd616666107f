// RUN: %exla-opt %s --passes=reshape-sinker,tensor-splitter --size-threshold=130KB --split-size=65KB --no-reassociate 2>&1 | filecheck %s

// The order of a sum over the batch and the phases stays: the loops are over features.

// CHECK: stablehlo.transpose {{.*}}, dims = [2, 0, 1, 3] : (tensor<16x120x2x4xf32>) -> tensor<2x16x120x4xf32>
// CHECK-NOT: dims = [0, 2, 1, 3]
// CHECK: stablehlo.convolution({{.*}} : (tensor<32x120x4xf32>, tensor<32x120x4xf32>) -> tensor<3x4x4xf32>
// CHECK-NOT: dims = [0, 2, 1, 3]
// CHECK: return

func.func @main(%x: tensor<16x240x4xf32>, %y: tensor<16x240x4xf32>, %w: tensor<4x16xf32>) -> (tensor<3x16x16xf32>, tensor<3x16x16xf32>) {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [2] x [0] : (tensor<16x240x4xf32>, tensor<4x16xf32>) -> tensor<16x240x16xf32>
  %1 = stablehlo.tanh %0 : tensor<16x240x16xf32>
  %2 = stablehlo.dot_general %y, %w, contracting_dims = [2] x [0] : (tensor<16x240x4xf32>, tensor<4x16xf32>) -> tensor<16x240x16xf32>
  %3 = stablehlo.tanh %2 : tensor<16x240x16xf32>
  %4 = stablehlo.reshape %1 : (tensor<16x240x16xf32>) -> tensor<16x120x2x16xf32>
  %5 = stablehlo.transpose %4, dims = [2, 0, 1, 3] : (tensor<16x120x2x16xf32>) -> tensor<2x16x120x16xf32>
  %6 = stablehlo.reshape %5 : (tensor<2x16x120x16xf32>) -> tensor<32x120x16xf32>
  %7 = stablehlo.reshape %3 : (tensor<16x240x16xf32>) -> tensor<16x120x2x16xf32>
  %8 = stablehlo.transpose %7, dims = [2, 0, 1, 3] : (tensor<16x120x2x16xf32>) -> tensor<2x16x120x16xf32>
  %9 = stablehlo.reshape %8 : (tensor<2x16x120x16xf32>) -> tensor<32x120x16xf32>
  %10 = stablehlo.convolution(%6, %9) dim_numbers = [f, 0, b]x[i, 0, o]->[0, b, f], window = {pad = [[1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<32x120x16xf32>, tensor<32x120x16xf32>) -> tensor<3x16x16xf32>
  %11 = stablehlo.reshape %1 : (tensor<16x240x16xf32>) -> tensor<16x80x3x16xf32>
  %12 = stablehlo.transpose %11, dims = [2, 0, 1, 3] : (tensor<16x80x3x16xf32>) -> tensor<3x16x80x16xf32>
  %13 = stablehlo.reshape %12 : (tensor<3x16x80x16xf32>) -> tensor<48x80x16xf32>
  %14 = stablehlo.reshape %3 : (tensor<16x240x16xf32>) -> tensor<16x80x3x16xf32>
  %15 = stablehlo.transpose %14, dims = [2, 0, 1, 3] : (tensor<16x80x3x16xf32>) -> tensor<3x16x80x16xf32>
  %16 = stablehlo.reshape %15 : (tensor<3x16x80x16xf32>) -> tensor<48x80x16xf32>
  %17 = stablehlo.convolution(%13, %16) dim_numbers = [f, 0, b]x[i, 0, o]->[0, b, f], window = {pad = [[1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<48x80x16xf32>, tensor<48x80x16xf32>) -> tensor<3x16x16xf32>
  return %10, %17 : tensor<3x16x16xf32>, tensor<3x16x16xf32>
}
