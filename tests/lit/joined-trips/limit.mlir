// RUN: %exla-opt %s --target=gpu --memory-limit=9MB --passes=normalise,tensor-splitter,joined-trips,normalise -o %t 2>&1 | filecheck %s --check-prefix=SAID
// RUN: cat %t | filecheck %s
// RUN: %exla-opt %s --target=gpu --memory-limit=9MB --passes=normalise,tensor-splitter,normalise | filecheck %s --check-prefix=ONE
// RUN: %exla-opt %s --memory-limit=9MB --passes=normalise,tensor-splitter,joined-trips,normalise | filecheck %s --check-prefix=ONE

// A GPU computes several slices in a trip, as many as fit and divide the trips, and writes what they make at once. A CPU
// does not, and nor does anybody without the pass.

// SAID: fits into 9MB, in slices of {{.*}}, up to {{[248]}} in a trip: {{.*}}

// CHECK: stablehlo.while(%[[I:.*]] = %{{.*}}, %[[O:.*]] = %{{.*}})
// CHECK: %[[A:.*]] = stablehlo.dot_general %{{.*}} -> tensor<[[ROWS:[0-9]+]]x16xf32>
// CHECK: %[[B:.*]] = stablehlo.dot_general %{{.*}} -> tensor<[[ROWS]]x16xf32>
// CHECK: %[[BOTH:.*]] = stablehlo.concatenate %[[A]], %[[B]]
// CHECK: stablehlo.dynamic_update_slice %[[O]], %[[BOTH]]
// CHECK-NOT: stablehlo.dynamic_update_slice

// ONE: stablehlo.while
// ONE-NOT: stablehlo.concatenate {{.*}}x16xf32>

func.func @main(%a: tensor<4096x16xf32>, %b: tensor<4096x16xf32>, %v: tensor<4096x16xf32>) -> tensor<4096x16xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<4096x16xf32>, tensor<4096x16xf32>) -> tensor<4096x4096xf32>
  %1 = stablehlo.exponential %0 : tensor<4096x4096xf32>
  %2 = stablehlo.dot_general %1, %v, contracting_dims = [1] x [0] : (tensor<4096x4096xf32>, tensor<4096x16xf32>) -> tensor<4096x16xf32>
  return %2 : tensor<4096x16xf32>
}
