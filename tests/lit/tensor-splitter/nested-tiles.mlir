// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=17KB --split-size=17KB | filecheck %s --check-prefix=ONE
// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=17KB --split-size=17KB --nested-tiles | filecheck %s

// A slice of 17 KB holds one row of 4,096 numbers. Two loops compute tiles of 64 x 64 instead, so that the points of the other set are
// read 64 times, not 4,096 times.

// ONE: stablehlo.dot_general %{{.*}} : (tensor<1x64xf32>, tensor<4096x64xf32>) -> tensor<1x4096xf32>

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[X:[^:]*]]: tensor<4096x64xf32>, %[[Y:[^:]*]]: tensor<4096x64xf32>, %[[V:[^:]*]]: tensor<4096xf32>
// CHECK-NOT: 4096x4096x
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %{{.*}}, %[[OUT:.*]] = %{{.*}})
// CHECK: %[[ROWS:.*]] = stablehlo.dynamic_slice %[[X]], %[[START:.*]], %{{.*}}, sizes = [64, 64]
// CHECK: %[[LOOP2:.*]]:2 = stablehlo.while(%[[J:.*]] = %{{.*}}, %[[SUM:.*]] = %{{.*}})
// CHECK: %[[COLUMNS:.*]] = stablehlo.dynamic_slice %[[Y]], %{{.*}}, %{{.*}}, sizes = [64, 64]
// CHECK: %[[DOT:.*]] = stablehlo.dot_general %[[ROWS]], %[[COLUMNS]], {{.*}} -> tensor<64x64xf32>
// CHECK: %[[EXP:.*]] = stablehlo.exponential %[[DOT]] : tensor<64x64xf32>
// CHECK: %[[PART:.*]] = stablehlo.dot_general %[[EXP]], %{{.*}} -> tensor<64xf32>
// CHECK: stablehlo.add %[[SUM]], %[[PART]] : tensor<64xf32>
// CHECK: stablehlo.dynamic_update_slice %[[OUT]], %[[LOOP2]]#1, %[[START]]
// CHECK-NOT: 4096x4096x
// CHECK: return %[[LOOP]]#1

func.func @main(%x: tensor<4096x64xf32>, %y: tensor<4096x64xf32>, %v: tensor<4096xf32>) -> tensor<4096xf32> {
  %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [1] : (tensor<4096x64xf32>, tensor<4096x64xf32>) -> tensor<4096x4096xf32>
  %1 = stablehlo.exponential %0 : tensor<4096x4096xf32>
  %2 = stablehlo.dot_general %1, %v, contracting_dims = [1] x [0] : (tensor<4096x4096xf32>, tensor<4096xf32>) -> tensor<4096xf32>
  return %2 : tensor<4096xf32>
}
