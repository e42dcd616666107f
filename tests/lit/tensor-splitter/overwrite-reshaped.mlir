// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// The result has another shape than the sorted tensor, whose elements it writes over in the same order: the loop carries
// the sorted tensor's shape, as XLA would copy a tensor that is read in one shape and written in another.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK: %[[SORTED:.*]] = "stablehlo.sort"
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%{{.*}} = %{{.*}}, %[[SO_FAR:.*]] = %[[SORTED]]) : tensor<i32>, tensor<4096x16xf32>
// CHECK: %[[START:.*]] = stablehlo.multiply
// CHECK: stablehlo.dynamic_slice %[[SO_FAR]], %{{.*}}, %{{.*}}, sizes = [8, 16]
// CHECK: %[[TILE:.*]] = stablehlo.reshape %{{.*}} : (tensor<1x8x16xf32>) -> tensor<8x16xf32>
// CHECK: stablehlo.dynamic_update_slice %[[SO_FAR]], %[[TILE]]
// CHECK: %[[RESULT:.*]] = stablehlo.reshape %[[LOOP]]#1 : (tensor<4096x16xf32>) -> tensor<512x8x16xf32>
// CHECK: return %[[RESULT]]

func.func @main(%x: tensor<4096x16xf32>, %w: tensor<512x16xf32>) -> tensor<512x8x16xf32> {
  %0 = "stablehlo.sort"(%x) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %9 = stablehlo.compare LT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %9 : tensor<i1>
  }) : (tensor<4096x16xf32>) -> tensor<4096x16xf32>
  %1 = stablehlo.dot_general %0, %w, contracting_dims = [1] x [1] : (tensor<4096x16xf32>, tensor<512x16xf32>) -> tensor<4096x512xf32>
  %2 = stablehlo.tanh %1 : tensor<4096x512xf32>
  %3 = stablehlo.dot_general %2, %w, contracting_dims = [1] x [0] : (tensor<4096x512xf32>, tensor<512x16xf32>) -> tensor<4096x16xf32>
  %5 = stablehlo.reshape %0 : (tensor<4096x16xf32>) -> tensor<512x8x16xf32>
  %6 = stablehlo.reshape %3 : (tensor<4096x16xf32>) -> tensor<512x8x16xf32>
  %4 = stablehlo.add %5, %6 : tensor<512x8x16xf32>
  return %4 : tensor<512x8x16xf32>
}
