// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB --remarks=all 2>&1 | filecheck %s

// A product of matrices is made once and read by products with vectors: computed again in every trip it would take a
// hundred times as long. The loop runs until all of the batch is done, so that it is not cut from outside either.

// CHECK: stablehlo.dot_general %{{.*}}, %{{.*}}, batching_dims = [0] x [0], contracting_dims = [1] x [1] {{.*}} -> tensor<64x32x32xf32>
// CHECK: stablehlo.while
// CHECK-NOT: contracting_dims = [1] x [1]
// CHECK: remark: 64x32x32xf32 (262KB) not split: the body of stablehlo.while uses it unsplit: it runs until all elements along that dimension are done

func.func @main(%a: tensor<64x32x32xf32>, %b: tensor<64x32xf32>) -> tensor<64x32xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %bound = stablehlo.constant dense<1.0e-3> : tensor<f32>
  %rate = stablehlo.constant dense<0.01> : tensor<64x32xf32>
  %start = stablehlo.constant dense<0.0> : tensor<64x32xf32>
  %i0 = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %last = stablehlo.constant dense<50> : tensor<i32>
  %m = stablehlo.dot_general %a, %a, batching_dims = [0] x [0], contracting_dims = [1] x [1] : (tensor<64x32x32xf32>, tensor<64x32x32xf32>) -> tensor<64x32x32xf32>
  %loop:3 = stablehlo.while(%i = %i0, %x = %start, %r = %b) : tensor<i32>, tensor<64x32xf32>, tensor<64x32xf32>
    cond {
      %size = stablehlo.abs %r : tensor<64x32xf32>
      %most = stablehlo.reduce(%size init: %zero) applies stablehlo.maximum across dimensions = [0, 1] : (tensor<64x32xf32>, tensor<f32>) -> tensor<f32>
      %above = stablehlo.compare GT, %most, %bound : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %left = stablehlo.compare LT, %i, %last : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %go = stablehlo.and %above, %left : tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %next = stablehlo.add %i, %one : tensor<i32>
      %step = stablehlo.multiply %r, %rate : tensor<64x32xf32>
      %y = stablehlo.add %x, %step : tensor<64x32xf32>
      %my = stablehlo.dot_general %m, %y, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<64x32x32xf32>, tensor<64x32xf32>) -> tensor<64x32xf32>
      %s = stablehlo.subtract %b, %my : tensor<64x32xf32>
      stablehlo.return %next, %y, %s : tensor<i32>, tensor<64x32xf32>, tensor<64x32xf32>
    }
  return %loop#1 : tensor<64x32xf32>
}
