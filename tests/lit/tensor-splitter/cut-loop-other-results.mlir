// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=40KB --remarks=passed 2>&1 | filecheck %s

// A loop over rows adds up two big sums. When the first is cut the second is cut with it: complete, it would be computed again
// in every tile, and would take a loop of its own, which repeats the first one in each of its tiles.

// CHECK: stablehlo.while({{.*}}) : tensor<i32>, tensor<4x64x64xbf16>, tensor<4x64x64xbf16>
// CHECK: stablehlo.while({{.*}}) : tensor<i32>, tensor<4x16x64xf32>, tensor<4x16x64xf32>
// CHECK: stablehlo.dot_general {{.*}} -> tensor<4x1x16xf32>
// CHECK-NOT: tensor<4x1x64xf32>, tensor<4x64x64xf32>
// CHECK-NOT: stablehlo.while
// CHECK: remark: 4x64x64xf32 (65.5KB) split over dimension 1 (64): 4 tiles of 16, with 2 more big tensors

func.func @main(%q: tensor<4x64x64xf32>, %k: tensor<4x64x64xf32>, %g: tensor<4x64x64xf32>) -> (tensor<4x64x64xbf16>, tensor<4x64x64xbf16>) {
  %i0 = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %last = stablehlo.constant dense<64> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<4x64x64xf32>
  %loop:3 = stablehlo.while(%i = %i0, %dk = %zeros, %dv = %zeros) : tensor<i32>, tensor<4x64x64xf32>, tensor<4x64x64xf32>
    cond {
      %go = stablehlo.compare LT, %i, %last : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %next = stablehlo.add %i, %one : tensor<i32>
      %row = stablehlo.dynamic_slice %q, %i0, %i, %i0, sizes = [4, 1, 64] : (tensor<4x64x64xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<4x1x64xf32>
      %back = stablehlo.dynamic_slice %g, %i0, %i, %i0, sizes = [4, 1, 64] : (tensor<4x64x64xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<4x1x64xf32>
      %s = stablehlo.dot_general %row, %k, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<4x1x64xf32>, tensor<4x64x64xf32>) -> tensor<4x1x64xf32>
      %p = stablehlo.tanh %s : tensor<4x1x64xf32>
      %0 = stablehlo.dot_general %p, %row, batching_dims = [0] x [0], contracting_dims = [1] x [1] : (tensor<4x1x64xf32>, tensor<4x1x64xf32>) -> tensor<4x64x64xf32>
      %1 = stablehlo.dot_general %p, %back, batching_dims = [0] x [0], contracting_dims = [1] x [1] : (tensor<4x1x64xf32>, tensor<4x1x64xf32>) -> tensor<4x64x64xf32>
      %2 = stablehlo.add %dk, %0 : tensor<4x64x64xf32>
      %3 = stablehlo.add %dv, %1 : tensor<4x64x64xf32>
      stablehlo.return %next, %2, %3 : tensor<i32>, tensor<4x64x64xf32>, tensor<4x64x64xf32>
    }
  %4 = stablehlo.convert %loop#1 : (tensor<4x64x64xf32>) -> tensor<4x64x64xbf16>
  %5 = stablehlo.convert %loop#2 : (tensor<4x64x64xf32>) -> tensor<4x64x64xbf16>
  return %4, %5 : tensor<4x64x64xbf16>, tensor<4x64x64xbf16>
}
