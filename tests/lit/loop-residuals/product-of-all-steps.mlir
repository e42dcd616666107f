// RUN: %exla-opt %s --passes=loop-residuals --size-threshold=8KB --remarks=passed 2>&1 | filecheck %s

// A layer is applied to the inputs of all steps: each step multiplies its own rows, which takes hardly any of its time.

// CHECK: stablehlo.while(
// CHECK-DAG: %[[ROWS:.*]] = stablehlo.dynamic_slice %arg0, %{{.*}}, %{{.*}}, %{{.*}}, sizes = [1, 16, 8]
// CHECK-DAG: %[[COS:.*]] = stablehlo.cosine %[[ROWS]] : tensor<1x16x8xf32>
// CHECK-DAG: stablehlo.dot_general %[[COS]], %arg1, contracting_dims = [2] x [0]{{.*}} -> tensor<1x16x16xf32>
// CHECK: 16x16x16xf32 (16.4KB) computed by each step that reads it: 16 steps are not computed beforehand [loop-residuals, EX006]

func.func @main(%x: tensor<16x16x8xf32>, %w: tensor<8x16xf32>, %start: tensor<256x16xf32>) -> tensor<256x16xf32> {
  %n = stablehlo.constant dense<16> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %cos = stablehlo.cosine %x : tensor<16x16x8xf32>
  %all = stablehlo.dot_general %cos, %w, contracting_dims = [2] x [0] : (tensor<16x16x8xf32>, tensor<8x16xf32>) -> tensor<16x16x16xf32>
  %loop:2 = stablehlo.while(%i = %c0, %h = %start) : tensor<i32>, tensor<256x16xf32>
  cond {
    %more = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %0 = stablehlo.dynamic_slice %all, %i, %c0, %c0, sizes = [1, 16, 16] : (tensor<16x16x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x16x16xf32>
    %matrix = stablehlo.reshape %0 : (tensor<1x16x16xf32>) -> tensor<16x16xf32>
    %1 = stablehlo.dot_general %h, %matrix, contracting_dims = [1] x [0] : (tensor<256x16xf32>, tensor<16x16xf32>) -> tensor<256x16xf32>
    %next = stablehlo.tanh %1 : tensor<256x16xf32>
    %i_next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %i_next, %next : tensor<i32>, tensor<256x16xf32>
  }
  return %loop#1 : tensor<256x16xf32>
}
