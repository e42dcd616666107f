// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB 2>&1 | filecheck %s

// The bits of a slice follow from the key and the numbers of its elements; the state after all of them from how many there are.

// CHECK-NOT: rng_bit_generator
// CHECK-NOT: 256x200
// CHECK: stablehlo.while({{.*}}) : tensor<i32>, tensor<256xf32>
// CHECK-NOT: 256x200
// CHECK: stablehlo.convert {{.*}} : (tensor<{{[0-9]+}}x200xui32>) -> tensor<{{[0-9]+}}x200xf32>
// CHECK-NOT: 256x200

func.func @main(%state: tensor<3xui64>, %v: tensor<200xf32>) -> (tensor<3xui64>, tensor<256xf32>) {
  %next, %bits = stablehlo.rng_bit_generator %state, algorithm = PHILOX : (tensor<3xui64>) -> (tensor<3xui64>, tensor<256x200xui32>)
  %0 = stablehlo.convert %bits : (tensor<256x200xui32>) -> tensor<256x200xf32>
  %1 = stablehlo.dot_general %0, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
  return %next, %1 : tensor<3xui64>, tensor<256xf32>
}
