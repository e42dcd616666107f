// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// The sorted tensor is a result as well, so the loop begins with zeros, not with a copy.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK: %[[ZEROS:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<4096x16xf32>
// CHECK: %[[SORTED:.*]] = "stablehlo.sort"
// CHECK: stablehlo.while({{.*}}, %{{.*}} = %[[ZEROS]])
// CHECK: stablehlo.dynamic_slice %[[SORTED]]

func.func @main(%x: tensor<4096x16xf32>, %w: tensor<512x16xf32>) -> (tensor<4096x16xf32>, tensor<4096x16xf32>) {
  %0 = "stablehlo.sort"(%x) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %9 = stablehlo.compare LT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %9 : tensor<i1>
  }) : (tensor<4096x16xf32>) -> tensor<4096x16xf32>
  %1 = stablehlo.dot_general %0, %w, contracting_dims = [1] x [1] : (tensor<4096x16xf32>, tensor<512x16xf32>) -> tensor<4096x512xf32>
  %2 = stablehlo.tanh %1 : tensor<4096x512xf32>
  %3 = stablehlo.dot_general %2, %w, contracting_dims = [1] x [0] : (tensor<4096x512xf32>, tensor<512x16xf32>) -> tensor<4096x16xf32>
  %4 = stablehlo.add %0, %3 : tensor<4096x16xf32>
  return %4, %0 : tensor<4096x16xf32>, tensor<4096x16xf32>
}
