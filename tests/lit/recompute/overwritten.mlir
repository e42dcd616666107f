// RUN: %exla-opt %s --passes=tensor-splitter,recompute,normalise --memory-limit=1.3MB -o %t --remarks=passed 2>&1 | filecheck %s --check-prefix=REMARK
// RUN: cat %t | filecheck %s
// RUN: %exla-opt %s --passes=tensor-splitter,recompute,normalise --memory-limit=1GB -o - | filecheck %s --check-prefix=LEFT

// A loop doubles the rows of a donated matrix in place, and a loss adds up the old rows: the compiler copies the matrix unless the
// loop waits for the sum.

// REMARK: remark: 512x512xf32 (1.05MB) overwritten once all others have read it: it is not copied

// CHECK: %[[LOSS:.*]] = stablehlo.reduce(%arg0
// CHECK: %[[BITS:.*]] = stablehlo.bitcast_convert %[[LOSS]]
// CHECK: %[[OR:.*]] = stablehlo.or %[[BITS]]
// CHECK: %[[ALWAYS:.*]] = stablehlo.compare NE, %[[OR]]
// CHECK: %[[START:.*]] = stablehlo.select %[[ALWAYS]]
// CHECK: stablehlo.while(%{{.*}} = %[[START]], %{{.*}} = %arg0)

// LEFT-NOT: stablehlo.select

func.func @main(%weights: tensor<512x512xf32> {tf.aliasing_output = 0 : i32}) -> (tensor<512x512xf32>, tensor<f32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c8 = stablehlo.constant dense<8> : tensor<i32>
  %c64 = stablehlo.constant dense<64> : tensor<i32>
  %loss = stablehlo.reduce(%weights init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<512x512xf32>, tensor<f32>) -> tensor<f32>
  %new:2 = stablehlo.while(%i = %c0, %w = %weights) : tensor<i32>, tensor<512x512xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c8, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %row = stablehlo.multiply %i, %c64 : tensor<i32>
    %rows = stablehlo.dynamic_slice %w, %row, %c0, sizes = [64, 512] : (tensor<512x512xf32>, tensor<i32>, tensor<i32>) -> tensor<64x512xf32>
    %twice = stablehlo.add %rows, %rows : tensor<64x512xf32>
    %next = stablehlo.dynamic_update_slice %w, %twice, %row, %c0 : (tensor<512x512xf32>, tensor<64x512xf32>, tensor<i32>, tensor<i32>) -> tensor<512x512xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next : tensor<i32>, tensor<512x512xf32>
  }
  return %new#1, %loss : tensor<512x512xf32>, tensor<f32>
}
