// RUN: %exla-opt %s --passes=narrow-slices --size-threshold=1KB | filecheck %s
// RUN: %exla-opt %s --passes=narrow-slices --size-threshold=8KB | filecheck %s --check-prefix=LEFT

// The slice at the loop's own place goes through a barrier; that of f32 and the one at a fixed place stay. So do all of a
// table whose copy in f16 is small.

// CHECK: stablehlo.while
// CHECK: do {
// CHECK: %[[HELD:.*]]:2 = stablehlo.optimization_barrier %arg0, %[[I:.*]] : tensor<64x32xf8E4M3FN>, tensor<i32>
// CHECK-NEXT: stablehlo.dynamic_slice %[[HELD]]#0, %[[HELD]]#1, %{{.*}}, sizes = [1, 32]
// CHECK-NOT: optimization_barrier
// CHECK: stablehlo.dynamic_slice %arg0, %{{.*}}, %{{.*}}, sizes = [1, 32]
// CHECK-NOT: optimization_barrier
// CHECK: stablehlo.dynamic_slice %arg1,

// LEFT-NOT: optimization_barrier

func.func @main(%t: tensor<64x32xf8E4M3FN>, %w: tensor<64x32xf32>) -> tensor<1x32xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %end = stablehlo.constant dense<64> : tensor<i32>
  %start = stablehlo.constant dense<0.0> : tensor<1x32xf32>
  %r:2 = stablehlo.while(%i = %zero, %sum = %start) : tensor<i32>, tensor<1x32xf32>
    cond {
      %go = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %s = stablehlo.dynamic_slice %t, %i, %zero, sizes = [1, 32] : (tensor<64x32xf8E4M3FN>, tensor<i32>, tensor<i32>) -> tensor<1x32xf8E4M3FN>
      %a = stablehlo.convert %s : (tensor<1x32xf8E4M3FN>) -> tensor<1x32xf32>
      %f = stablehlo.dynamic_slice %t, %one, %zero, sizes = [1, 32] : (tensor<64x32xf8E4M3FN>, tensor<i32>, tensor<i32>) -> tensor<1x32xf8E4M3FN>
      %b = stablehlo.convert %f : (tensor<1x32xf8E4M3FN>) -> tensor<1x32xf32>
      %c = stablehlo.dynamic_slice %w, %i, %zero, sizes = [1, 32] : (tensor<64x32xf32>, tensor<i32>, tensor<i32>) -> tensor<1x32xf32>
      %ab = stablehlo.multiply %a, %b : tensor<1x32xf32>
      %abc = stablehlo.multiply %ab, %c : tensor<1x32xf32>
      %new = stablehlo.add %sum, %abc : tensor<1x32xf32>
      %next = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %next, %new : tensor<i32>, tensor<1x32xf32>
    }
  return %r#1 : tensor<1x32xf32>
}
