// RUN: %exla-opt %s --passes=recompute,normalise --memory-limit=6MB -o %t --remarks=passed 2>&1 | filecheck %s --check-prefix=REMARK
// RUN: cat %t | filecheck %s
// RUN: %exla-opt %s --passes=recompute,normalise --memory-limit=1GB -o - | filecheck %s --check-prefix=LEFT

// Two chains of three products. XLA:CPU runs them side by side: four matrices of 1 MB are in memory, two of each chain. The first
// product of the second chain waits for the sum of the first.

// REMARK: remark: 512x512xf32 (1.05MB) computed after another chain of ops, with the {{.*}} that follow it

// CHECK: %[[A:.*]] = stablehlo.dot_general %arg0, %arg0
// CHECK: stablehlo.dot_general %[[A]], %[[A]]
// CHECK: %[[SUM:.*]] = stablehlo.reduce({{.*}} across dimensions = [0]
// CHECK: %[[BITS:.*]] = stablehlo.bitcast_convert
// CHECK: %[[OR:.*]] = stablehlo.or %[[BITS]]
// CHECK: %[[ALWAYS:.*]] = stablehlo.compare NE, %[[OR]]
// CHECK: %[[B:.*]]:2 = stablehlo.while(%[[I:.*]] = %{{.*}}, %{{.*}} = %{{.*}})
// CHECK: %[[HELD:.*]]:2 = stablehlo.optimization_barrier %arg1, %[[I]]
// CHECK: stablehlo.dot_general %[[HELD]]#0, %[[HELD]]#0
// CHECK: stablehlo.dot_general %[[B]]#1, %[[B]]#1

// LEFT-NOT: stablehlo.while

func.func @main(%x: tensor<512x512xf32>, %y: tensor<512x512xf32>) -> (tensor<512xf32>, tensor<512xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %a = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0] : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  %aa = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0] : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  %aaa = stablehlo.dot_general %aa, %a, contracting_dims = [1] x [0] : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  %sa = stablehlo.reduce(%aaa init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<512x512xf32>, tensor<f32>) -> tensor<512xf32>
  %b = stablehlo.dot_general %y, %y, contracting_dims = [1] x [0] : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  %bb = stablehlo.dot_general %b, %b, contracting_dims = [1] x [0] : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  %bbb = stablehlo.dot_general %bb, %b, contracting_dims = [1] x [0] : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  %sb = stablehlo.reduce(%bbb init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<512x512xf32>, tensor<f32>) -> tensor<512xf32>
  return %sa, %sb : tensor<512xf32>, tensor<512xf32>
}
