// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=16KB --remarks=all 2>&1 | filecheck %s --check-prefix=FEW
// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=4KB --remarks=all 2>&1 | filecheck %s --check-prefix=MANY

// What a loop reads is a slice. While it takes no more than a few times the split size it is not moved into the loop, to be cut
// there in every trip for hardly less memory: the loop itself is cut, and its slice stays outside.

// FEW: stablehlo.while({{.*}}) : tensor<i32>, tensor<64x80xf32>
// FEW: stablehlo.dynamic_slice %{{.*}}, %arg2, {{.*}} sizes = [1, 40, 64]
// FEW: stablehlo.while({{.*}}) : tensor<i32>, tensor<64x40xf32>
// FEW-NOT: sizes = [1, 40, 64]
// FEW: remark: 1x80x64xf32 (20.5KB) split over dimension 1 (80): 2 tiles of 40, with 1 more big tensor

// MANY: stablehlo.while({{.*}}) : tensor<i32>, tensor<64x80xf32>
// MANY: stablehlo.while({{.*}}) : tensor<i32>, tensor<1x80xf32>
// MANY: stablehlo.dynamic_slice %{{.*}}, %arg2, {{.*}} sizes = [1, 10, 64]
// MANY: remark: 1x80x64xf32 (20.5KB) split over dimension 1 (80): 8 tiles of 10, with 1 more big tensor

func.func @main(%q: tensor<64x64xf32>, %k: tensor<4x80x64xf32>, %which: tensor<i32>) -> tensor<64x80xf32> {
  %i0 = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %last = stablehlo.constant dense<64> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<64x80xf32>
  %keys = stablehlo.dynamic_slice %k, %which, %i0, %i0, sizes = [1, 80, 64] : (tensor<4x80x64xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x80x64xf32>
  %loop:2 = stablehlo.while(%i = %i0, %out = %zeros) : tensor<i32>, tensor<64x80xf32>
    cond {
      %go = stablehlo.compare LT, %i, %last : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %next = stablehlo.add %i, %one : tensor<i32>
      %row = stablehlo.dynamic_slice %q, %i, %i0, sizes = [1, 64] : (tensor<64x64xf32>, tensor<i32>, tensor<i32>) -> tensor<1x64xf32>
      %matrix = stablehlo.reshape %keys : (tensor<1x80x64xf32>) -> tensor<80x64xf32>
      %flat = stablehlo.dot_general %row, %matrix, contracting_dims = [1] x [1] : (tensor<1x64xf32>, tensor<80x64xf32>) -> tensor<1x80xf32>
      %after = stablehlo.dynamic_update_slice %out, %flat, %i, %i0 : (tensor<64x80xf32>, tensor<1x80xf32>, tensor<i32>, tensor<i32>) -> tensor<64x80xf32>
      stablehlo.return %next, %after : tensor<i32>, tensor<64x80xf32>
    }
  return %loop#1 : tensor<64x80xf32>
}
