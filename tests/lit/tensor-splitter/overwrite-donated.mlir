// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// Both arguments are written over: the loop begins with them, each tile reads its slice and then writes it, and who needs
// the new slice of %m reads it back.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[P:[^:]*]]: tensor<4096x16xf32> {tf.aliasing_output = 0 : i32}, %[[M:[^:]*]]: tensor<4096x16xf32> {tf.aliasing_output = 1 : i32}, %[[X:[^:]*]]: tensor<512x16xf32>, %[[RATE:[^:]*]]: tensor<4096x16xf32>
// CHECK: %[[LOOP:.*]]:3 = stablehlo.while(%[[I:.*]] = %{{.*}}, %[[M_SO_FAR:.*]] = %[[M]], %[[P_SO_FAR:.*]] = %[[P]])
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %{{.*}} : tensor<i32>
// CHECK: %[[P_TILE:.*]] = stablehlo.dynamic_slice %[[P_SO_FAR]], %[[START]]
// CHECK: stablehlo.dot_general %[[X]], %[[P_TILE]]
// CHECK: %[[STEP:.*]] = stablehlo.dot_general %{{.*}}, %[[X]], contracting_dims = [0] x [0]
// CHECK: %[[M_TILE:.*]] = stablehlo.dynamic_slice %[[M_SO_FAR]], %[[START]]
// CHECK: %[[M_NEW:.*]] = stablehlo.add %[[M_TILE]], %[[STEP]]
// CHECK: %[[M_AFTER:.*]] = stablehlo.dynamic_update_slice %[[M_SO_FAR]], %[[M_NEW]], %[[START]]
// CHECK: %[[M_BACK:.*]] = stablehlo.dynamic_slice %[[M_AFTER]], %[[START]]
// CHECK: %[[SCALED:.*]] = stablehlo.multiply %[[M_BACK]], %{{.*}}
// CHECK: %[[P_NEW:.*]] = stablehlo.subtract %[[P_TILE]], %[[SCALED]]
// CHECK: %[[P_AFTER:.*]] = stablehlo.dynamic_update_slice %[[P_SO_FAR]], %[[P_NEW]], %[[START]]
// CHECK: stablehlo.return %{{.*}}, %[[M_AFTER]], %[[P_AFTER]]
// CHECK: return %[[LOOP]]#2, %[[LOOP]]#1

func.func @main(%p: tensor<4096x16xf32> {tf.aliasing_output = 0 : i32}, %m: tensor<4096x16xf32> {tf.aliasing_output = 1 : i32}, %x: tensor<512x16xf32>, %rate: tensor<4096x16xf32>) -> (tensor<4096x16xf32>, tensor<4096x16xf32>) {
  %0 = stablehlo.dot_general %x, %p, contracting_dims = [1] x [1] : (tensor<512x16xf32>, tensor<4096x16xf32>) -> tensor<512x4096xf32>
  %1 = stablehlo.tanh %0 : tensor<512x4096xf32>
  %2 = stablehlo.dot_general %1, %x, contracting_dims = [0] x [0] : (tensor<512x4096xf32>, tensor<512x16xf32>) -> tensor<4096x16xf32>
  %3 = stablehlo.add %m, %2 : tensor<4096x16xf32>
  %4 = stablehlo.multiply %3, %rate : tensor<4096x16xf32>
  %5 = stablehlo.subtract %p, %4 : tensor<4096x16xf32>
  return %5, %3 : tensor<4096x16xf32>, tensor<4096x16xf32>
}
