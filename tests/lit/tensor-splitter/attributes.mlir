// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// Attributes of the module, of arguments and of results stay as they were.

// CHECK: module @jit_step attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32}
// CHECK: func.func public @main(%[[OLD:[^:]*]]: tensor<256xf32> {tf.aliasing_output = 0 : i32}
// CHECK-SAME: %[[A:[^:]*]]: tensor<256x4xf32> {jax.buffer_donor = true}
// CHECK-SAME: tensor<200x4xf32> {mhlo.sharding = "{replicated}"}
// CHECK-SAME: -> (tensor<256xf32> {jax.result_info = "state"})
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while
// CHECK: stablehlo.dynamic_slice %[[A]], {{.*}}, sizes = [32, 4]
// CHECK: %[[NEW:.*]] = stablehlo.add %[[OLD]], %[[LOOP]]#1
// CHECK: return %[[NEW]]

module @jit_step attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
func.func public @main(%old: tensor<256xf32> {tf.aliasing_output = 0 : i32}, %a: tensor<256x4xf32> {jax.buffer_donor = true}, %b: tensor<200x4xf32> {mhlo.sharding = "{replicated}"}, %v: tensor<200xf32>) -> (tensor<256xf32> {jax.result_info = "state"}) {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<256x4xf32>, tensor<200x4xf32>) -> tensor<256x200xf32>
  %1 = stablehlo.exponential %0 : tensor<256x200xf32>
  %2 = stablehlo.dot_general %1, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
  %3 = stablehlo.add %old, %2 : tensor<256xf32>
  return %3 : tensor<256xf32>
}
}
