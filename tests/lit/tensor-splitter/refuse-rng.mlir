// RUN: %exla-opt %s --size-threshold=64KB --split-size=32KB | filecheck %s

// Random bits depend on their position: cut, they would be others.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[STATE:[^:]*]]: tensor<2xui64>, %[[V:[^:]*]]: tensor<200xf32>
// CHECK-DAG: %[[TILE:.*]] = stablehlo.constant dense<32> : tensor<i32>
// CHECK-DAG: %[[TRIPS:.*]] = stablehlo.constant dense<8> : tensor<i32>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK-DAG: %[[ZEROS:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<256xf32>
// CHECK: %[[RNG_BIT_GENERATOR:.*]], %[[OTHER:.*]] = stablehlo.rng_bit_generator %[[STATE]], algorithm = THREE_FRY : {{.*}} -> (tensor<2xui64>, tensor<256x200xui32>)
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %[[ZERO]], %[[STATE2:.*]] = %[[ZEROS]])
// CHECK: stablehlo.compare LT, %[[I]], %[[TRIPS]], SIGNED
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %[[TILE]] : tensor<i32>
// CHECK: %[[OTHER_TILE:.*]] = stablehlo.dynamic_slice %[[OTHER]], %[[START]], %[[ZERO]], sizes = [32, 200] : {{.*}} -> tensor<32x200xui32>
// CHECK: %[[CONVERTED:.*]] = stablehlo.convert %[[OTHER_TILE]] : {{.*}} -> tensor<32x200xf32>
// CHECK: %[[DOT:.*]] = stablehlo.dot_general %[[CONVERTED]], %[[V]], contracting_dims = [1] x [0] : {{.*}} -> tensor<32xf32>
// CHECK: %[[WRITTEN:.*]] = stablehlo.dynamic_update_slice %[[STATE2]], %[[DOT]], %[[START]] : {{.*}} -> tensor<256xf32>
// CHECK: stablehlo.return %{{.*}}, %[[WRITTEN]]
// CHECK: return %[[RNG_BIT_GENERATOR]], %[[LOOP]]#1

func.func @main(%state: tensor<2xui64>, %v: tensor<200xf32>) -> (tensor<2xui64>, tensor<256xf32>) {
  %next, %bits = stablehlo.rng_bit_generator %state, algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, tensor<256x200xui32>)
  %0 = stablehlo.convert %bits : (tensor<256x200xui32>) -> tensor<256x200xf32>
  %1 = stablehlo.dot_general %0, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
  return %next, %1 : tensor<2xui64>, tensor<256xf32>
}
