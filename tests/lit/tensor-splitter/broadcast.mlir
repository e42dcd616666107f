// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// A broadcast of a small vector is a broadcast of its slice; one of a scalar is a smaller broadcast.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[U:[^:]*]]: tensor<256xf32>, %[[S:[^:]*]]: tensor<f32>, %[[V:[^:]*]]: tensor<200xf32>
// CHECK-DAG: %[[TILE:.*]] = stablehlo.constant dense<32> : tensor<i32>
// CHECK-DAG: %[[TRIPS:.*]] = stablehlo.constant dense<8> : tensor<i32>
// CHECK-DAG: %[[ZEROS:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<256xf32>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK-NOT: 256x200x
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %[[ZERO]], %[[OUT:.*]] = %[[ZEROS]])
// CHECK: stablehlo.compare LT, %[[I]], %[[TRIPS]], SIGNED
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %[[TILE]] : tensor<i32>
// CHECK: %[[U_TILE:.*]] = stablehlo.dynamic_slice %[[U]], %[[START]], sizes = [32] : {{.*}} -> tensor<32xf32>
// CHECK: %[[SPREAD:.*]] = stablehlo.broadcast_in_dim %[[U_TILE]], dims = [0] : {{.*}} -> tensor<32x200xf32>
// CHECK: %[[SPREAD2:.*]] = stablehlo.broadcast_in_dim %[[S]], dims = [] : {{.*}} -> tensor<32x200xf32>
// CHECK: %[[ATAN2:.*]] = stablehlo.atan2 %[[SPREAD]], %[[SPREAD2]] : tensor<32x200xf32>
// CHECK: %[[ABS:.*]] = stablehlo.abs %[[ATAN2]] : tensor<32x200xf32>
// CHECK: %[[DOT:.*]] = stablehlo.dot_general %[[ABS]], %[[V]], contracting_dims = [1] x [0] : {{.*}} -> tensor<32xf32>
// CHECK: %[[WRITTEN:.*]] = stablehlo.dynamic_update_slice %[[OUT]], %[[DOT]], %[[START]] : {{.*}} -> tensor<256xf32>
// CHECK: stablehlo.return %{{.*}}, %[[WRITTEN]]
// CHECK-NOT: 256x200x
// CHECK: return %[[LOOP]]#1

func.func @main(%u: tensor<256xf32>, %s: tensor<f32>, %v: tensor<200xf32>) -> tensor<256xf32> {
  %0 = stablehlo.broadcast_in_dim %u, dims = [0] : (tensor<256xf32>) -> tensor<256x200xf32>
  %1 = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<256x200xf32>
  %2 = stablehlo.atan2 %0, %1 : tensor<256x200xf32>
  %3 = stablehlo.abs %2 : tensor<256x200xf32>
  %4 = stablehlo.dot_general %3, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
  return %4 : tensor<256xf32>
}
