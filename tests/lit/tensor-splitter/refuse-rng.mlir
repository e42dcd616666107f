// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB 2>&1 | filecheck %s

// Random bits depend on their position: cut, they would be others. This draw has a note for XLA, so it is not written out.

// CHECK: %[[NEXT:.*]], %[[BITS:.*]] = stablehlo.rng_bit_generator {{.*}}-> (tensor<2xui64>, tensor<257x201xui32>)
// What is made of the bits can be split all the same.
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while
// CHECK: %[[ROWS:.*]] = stablehlo.dynamic_slice %[[BITS]], {{.*}}, sizes = [39, 201]
// CHECK: stablehlo.convert %[[ROWS]]
// CHECK: return %[[NEXT]], %
// CHECK: refuse-rng.mlir:{{[0-9]+}}:18: remark: 257x201xui32 (207KB) not split: stablehlo.rng_bit_generator draws random numbers that depend on their position, such as those of jax.random [tensor-splitter, EX203]

func.func @main(%state: tensor<2xui64>, %v: tensor<201xf32>) -> (tensor<2xui64>, tensor<257xf32>) {
  %next, %bits = "stablehlo.rng_bit_generator"(%state) <{rng_algorithm = #stablehlo<rng_algorithm THREE_FRY>}> {mhlo.frontend_attributes = {owner = "user"}} : (tensor<2xui64>) -> (tensor<2xui64>, tensor<257x201xui32>)
  %0 = stablehlo.convert %bits : (tensor<257x201xui32>) -> tensor<257x201xf32>
  %1 = stablehlo.dot_general %0, %v, contracting_dims = [1] x [0] : (tensor<257x201xf32>, tensor<201xf32>) -> tensor<257xf32>
  return %next, %1 : tensor<2xui64>, tensor<257xf32>
}
