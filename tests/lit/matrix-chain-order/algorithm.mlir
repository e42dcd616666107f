// RUN: %exla-opt %s --passes=matrix-chain-order | filecheck %s

// Dots of one algorithm keep it in another order; a dot of another algorithm is no part of their product.

// CHECK-COUNT-2: stablehlo.dot_general {{.*}}algorithm = <{{.*}}> : {{.*}} -> tensor<{{8|400}}xf32>
// CHECK: stablehlo.dot_general {{.*}} -> tensor<400x300xf32>
// CHECK-NEXT: stablehlo.dot_general {{.*}} -> tensor<400xf32>

func.func @main(%a: tensor<400x8xf32>, %b: tensor<300x8xf32>, %v: tensor<300xf32>, %c: tensor<400x8xf32>) -> (tensor<400xf32>, tensor<400xf32>) {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1], algorithm = <lhs_precision_type = f32, rhs_precision_type = f32, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = false> : (tensor<400x8xf32>, tensor<300x8xf32>) -> tensor<400x300xf32>
  %1 = stablehlo.dot_general %0, %v, contracting_dims = [1] x [0], algorithm = <lhs_precision_type = f32, rhs_precision_type = f32, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = false> : (tensor<400x300xf32>, tensor<300xf32>) -> tensor<400xf32>
  %2 = stablehlo.dot_general %c, %b, contracting_dims = [1] x [1], algorithm = <lhs_precision_type = f32, rhs_precision_type = f32, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = false> : (tensor<400x8xf32>, tensor<300x8xf32>) -> tensor<400x300xf32>
  %3 = stablehlo.dot_general %2, %v, contracting_dims = [1] x [0] : (tensor<400x300xf32>, tensor<300xf32>) -> tensor<400xf32>
  return %1, %3 : tensor<400xf32>, tensor<400xf32>
}
