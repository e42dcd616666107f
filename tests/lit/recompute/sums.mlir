// RUN: %exla-opt %s --passes=recompute,normalise --memory-limit=15MB -o %t --remarks=passed 2>&1 | filecheck %s --check-prefix=REMARK
// RUN: cat %t | filecheck %s
// RUN: %exla-opt %s --passes=recompute,normalise --memory-limit=1GB -o - | filecheck %s --check-prefix=LEFT

// Five terms of 2.1 MB, each once the one before is no longer needed, and ones, which take no memory. The first two terms are
// added, then a loop of two halves adds each but the last; the ones are added at the end.

// REMARK: remark: {{.*}}1024x512xf32{{.*}}added up in 2 loops, as soon as its terms are there

// CHECK: %[[A:.*]] = stablehlo.dot_general %arg0, %arg1
// CHECK: %[[B:.*]] = stablehlo.dot_general %{{.*}}, %arg1
// CHECK: %[[AB:.*]] = stablehlo.add %[[A]], %[[B]]
// CHECK: %[[C:.*]] = stablehlo.dot_general %{{.*}}, %arg1
// CHECK: %[[ABC:.*]]:2 = stablehlo.while(%[[I:.*]] = %{{.*}}, %[[SUM:.*]] = %[[AB]])
// CHECK: stablehlo.compare LT, %[[I]]
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %{{.*}}
// CHECK: %[[OLD:.*]] = stablehlo.dynamic_slice %[[SUM]], %[[START]], %{{.*}}, sizes = [512, 512]
// CHECK: %[[TERM:.*]] = stablehlo.dynamic_slice %[[C]], %[[START]], %{{.*}}, sizes = [512, 512]
// CHECK: %[[NEW:.*]] = stablehlo.add %[[OLD]], %[[TERM]]
// CHECK: stablehlo.dynamic_update_slice %[[SUM]], %[[NEW]], %[[START]]
// CHECK: %[[D:.*]] = stablehlo.dot_general %{{.*}}, %arg1
// CHECK: %[[ABCD:.*]]:2 = stablehlo.while(%{{.*}} = %{{.*}}, %{{.*}} = %[[ABC]]#1)
// CHECK: %[[E:.*]] = stablehlo.dot_general %{{.*}}, %arg1
// CHECK: %[[ALL:.*]] = stablehlo.add %[[ABCD]]#1, %[[E]]
// CHECK: stablehlo.add %[[ALL]], %{{.*}}

// LEFT-NOT: stablehlo.while

func.func @main(%x: tensor<1024x512xf32>, %w: tensor<512x512xf32>) -> tensor<1024x512xf32> {
  %ones = stablehlo.constant dense<1.0> : tensor<1024x512xf32>
  %a = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<1024x512xf32>, tensor<512x512xf32>) -> tensor<1024x512xf32>
  %0 = stablehlo.tanh %a : tensor<1024x512xf32>
  %b = stablehlo.dot_general %0, %w, contracting_dims = [1] x [0] : (tensor<1024x512xf32>, tensor<512x512xf32>) -> tensor<1024x512xf32>
  %1 = stablehlo.tanh %b : tensor<1024x512xf32>
  %c = stablehlo.dot_general %1, %w, contracting_dims = [1] x [0] : (tensor<1024x512xf32>, tensor<512x512xf32>) -> tensor<1024x512xf32>
  %2 = stablehlo.tanh %c : tensor<1024x512xf32>
  %d = stablehlo.dot_general %2, %w, contracting_dims = [1] x [0] : (tensor<1024x512xf32>, tensor<512x512xf32>) -> tensor<1024x512xf32>
  %3 = stablehlo.tanh %d : tensor<1024x512xf32>
  %e = stablehlo.dot_general %3, %w, contracting_dims = [1] x [0] : (tensor<1024x512xf32>, tensor<512x512xf32>) -> tensor<1024x512xf32>
  %4 = stablehlo.add %e, %ones : tensor<1024x512xf32>
  %5 = stablehlo.add %4, %d : tensor<1024x512xf32>
  %6 = stablehlo.add %c, %b : tensor<1024x512xf32>
  %7 = stablehlo.add %5, %6 : tensor<1024x512xf32>
  %8 = stablehlo.add %7, %a : tensor<1024x512xf32>
  return %8 : tensor<1024x512xf32>
}
