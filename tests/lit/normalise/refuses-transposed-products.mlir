// RUN: %exla-opt %s --passes=normalise | filecheck %s

// Swapped, the first product would be one of two transposed matrices, which is slow on a CPU; the second is also read as
// it is; the third is transposed in another order; the types of the fourth one's algorithm belong to its operands.

// CHECK-LABEL: func.func @main
// CHECK-COUNT-4: stablehlo.transpose
func.func @main(%x: tensor<5x8xf32>, %y: tensor<8x3xf32>, %z: tensor<8x5xf32>, %u: tensor<8x2x5xf32>)
    -> (tensor<3x5xf32>, tensor<3x5xf32>, tensor<5x3xf32>, tensor<5x2x3xf32>, tensor<3x5xf32>) {
  %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<5x8xf32>, tensor<8x3xf32>) -> tensor<5x3xf32>
  %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<5x3xf32>) -> tensor<3x5xf32>
  %2 = stablehlo.dot_general %z, %y, contracting_dims = [0] x [0] : (tensor<8x5xf32>, tensor<8x3xf32>) -> tensor<5x3xf32>
  %3 = stablehlo.transpose %2, dims = [1, 0] : (tensor<5x3xf32>) -> tensor<3x5xf32>
  %4 = stablehlo.dot_general %u, %y, contracting_dims = [0] x [0] : (tensor<8x2x5xf32>, tensor<8x3xf32>) -> tensor<2x5x3xf32>
  %5 = stablehlo.transpose %4, dims = [1, 0, 2] : (tensor<2x5x3xf32>) -> tensor<5x2x3xf32>
  %6 = stablehlo.dot_general %z, %y, contracting_dims = [0] x [0], algorithm = <lhs_precision_type = tf32, rhs_precision_type = tf32, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = false> : (tensor<8x5xf32>, tensor<8x3xf32>) -> tensor<5x3xf32>
  %7 = stablehlo.transpose %6, dims = [1, 0] : (tensor<5x3xf32>) -> tensor<3x5xf32>
  return %1, %3, %2, %5, %7 : tensor<3x5xf32>, tensor<3x5xf32>, tensor<5x3xf32>, tensor<5x2x3xf32>, tensor<3x5xf32>
}
