// RUN: %exla-opt %s --passes=normalise | filecheck %s

// Names, module attributes, argument and result attributes and locations stay; dead functions and ops go.

// CHECK: module @jit_step attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32}
// CHECK: func.func public @main
// CHECK-SAME: {mhlo.sharding = "{replicated}", tf.aliasing_output = 0 : i32}
// CHECK-SAME: {jax.buffer_donor = true}
// CHECK-SAME: {jax.result_info = "state"}
// CHECK-NEXT: %{{.+}}, %{{.+}} = chlo.top_k(%{{.+}}, k = 2) {{.*}} loc([[WHERE:#.+]])
// CHECK-NOT: stablehlo.negate
// CHECK-NOT: func.func private
// CHECK: [[WHERE]] = loc("model.py":12:3)

module @jit_step attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%x: tensor<4xf32> {mhlo.sharding = "{replicated}", tf.aliasing_output = 0 : i32},
                         %y: tensor<2xf32> {jax.buffer_donor = true}) -> (tensor<2xf32> {jax.result_info = "state"}) {
    %dead = stablehlo.negate %x : tensor<4xf32>
    %values, %indices = chlo.top_k(%x, k = 2) : tensor<4xf32> -> (tensor<2xf32>, tensor<2xi32>) loc("model.py":12:3)
    %0 = stablehlo.add %values, %y : tensor<2xf32>
    return %0 : tensor<2xf32>
  }
  func.func private @reducer_that_nobody_calls(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.add %a, %b : tensor<f32>
    return %0 : tensor<f32>
  }
}
