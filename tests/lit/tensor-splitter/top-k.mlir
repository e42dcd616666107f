// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// The nearest of 200 points for each of 256: rows of a top-k are independent.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<256x4xf32>, %[[B:[^:]*]]: tensor<200x4xf32>
// CHECK-DAG: %[[TILE:.*]] = stablehlo.constant dense<32> : tensor<i32>
// CHECK-DAG: %[[TRIPS:.*]] = stablehlo.constant dense<8> : tensor<i32>
// CHECK-DAG: %[[ZEROS:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<256x3xf32>
// CHECK-DAG: %[[ZEROS2:.*]] = stablehlo.constant dense<0> : tensor<256x3xi32>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK-NOT: 256x200x
// CHECK: %[[LOOP:.*]]:3 = stablehlo.while(%[[I:.*]] = %[[ZERO]], %[[OUT:.*]] = %[[ZEROS]], %[[OUT2:.*]] = %[[ZEROS2]])
// CHECK: stablehlo.compare LT, %[[I]], %[[TRIPS]], SIGNED
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %[[TILE]] : tensor<i32>
// CHECK: %[[A_TILE:.*]] = stablehlo.dynamic_slice %[[A]], %[[START]], %[[ZERO]], sizes = [32, 4] : {{.*}} -> tensor<32x4xf32>
// CHECK: %[[SCORES:.*]] = stablehlo.dot_general %[[A_TILE]], %[[B]], contracting_dims = [1] x [1] : {{.*}} -> tensor<32x200xf32>
// CHECK: %[[VALUES:.*]], %[[INDICES:.*]] = chlo.top_k(%[[SCORES]], k = 3) : tensor<32x200xf32> -> (tensor<32x3xf32>, tensor<32x3xi32>)
// CHECK: %[[WRITTEN:.*]] = stablehlo.dynamic_update_slice %[[OUT]], %[[VALUES]], %[[START]], %[[ZERO]] : {{.*}} -> tensor<256x3xf32>
// CHECK: %[[WRITTEN2:.*]] = stablehlo.dynamic_update_slice %[[OUT2]], %[[INDICES]], %[[START]], %[[ZERO]] : {{.*}} -> tensor<256x3xi32>
// CHECK: stablehlo.return %{{.*}}, %[[WRITTEN]], %[[WRITTEN2]]
// CHECK-NOT: 256x200x
// CHECK: return %[[LOOP]]#1, %[[LOOP]]#2

func.func @main(%a: tensor<256x4xf32>, %b: tensor<200x4xf32>) -> (tensor<256x3xf32>, tensor<256x3xi32>) {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<256x4xf32>, tensor<200x4xf32>) -> tensor<256x200xf32>
  %values, %indices = chlo.top_k(%0, k = 3) : tensor<256x200xf32> -> (tensor<256x3xf32>, tensor<256x3xi32>)
  return %values, %indices : tensor<256x3xf32>, tensor<256x3xi32>
}
