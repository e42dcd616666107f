// RUN: %exla-opt %s --passes=recompute,normalise --memory-limit=4.3MB -o %t --remarks=passed 2>&1 | filecheck %s --check-prefix=REMARK
// RUN: cat %t | filecheck %s
// RUN: %exla-opt %s --passes=recompute,normalise --memory-limit=1GB -o - | filecheck %s --check-prefix=LEFT

// The first result, of 1 MB, is a product of two small matrices that are there at the start. Then a chain of products takes two
// or three matrices of 1 MB at a time. One of them can have the memory of the result, if that is computed last.

// REMARK: remark: 512x512xf32 (1.05MB) computed at the end: until then its memory is free for other tensors

// CHECK: %[[SUM:.*]] = stablehlo.reduce({{.*}} across dimensions = [0]
// CHECK: %[[BITS:.*]] = stablehlo.bitcast_convert
// CHECK: %[[OR:.*]] = stablehlo.or %[[BITS]]
// CHECK: %[[ALWAYS:.*]] = stablehlo.compare NE, %[[OR]]
// CHECK: %[[A:.*]] = stablehlo.select %[[ALWAYS]], %arg0
// CHECK: %[[B:.*]] = stablehlo.select %[[ALWAYS]], %arg1
// CHECK: %[[T:.*]] = stablehlo.tanh %[[B]]
// CHECK: %[[RESULT:.*]] = stablehlo.dot_general %[[A]], %[[T]]
// CHECK: return %[[RESULT]], %[[SUM]]

// LEFT-NOT: stablehlo.select

func.func @main(%a: tensor<512x8xf32>, %b: tensor<8x512xf32>, %x: tensor<512x512xf32>) -> (tensor<512x512xf32>, tensor<512xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %t = stablehlo.tanh %b : tensor<8x512xf32>
  %r = stablehlo.dot_general %a, %t, contracting_dims = [1] x [0] : (tensor<512x8xf32>, tensor<8x512xf32>) -> tensor<512x512xf32>
  %y = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0] : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  %yy = stablehlo.dot_general %y, %y, contracting_dims = [1] x [0] : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  %yyy = stablehlo.dot_general %yy, %y, contracting_dims = [1] x [0] : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  %s = stablehlo.reduce(%yyy init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<512x512xf32>, tensor<f32>) -> tensor<512xf32>
  return %r, %s : tensor<512x512xf32>, tensor<512xf32>
}
