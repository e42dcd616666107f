// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// The partial products of a bf16 contraction are f32, and so is their sum.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<65536x4xbf16>, %[[W:[^:]*]]: tensor<4xbf16>, %[[V:[^:]*]]: tensor<65536x3xbf16>
// CHECK-DAG: %[[TILE:.*]] = stablehlo.constant dense<2048> : tensor<i32>
// CHECK-DAG: %[[TRIPS:.*]] = stablehlo.constant dense<32> : tensor<i32>
// CHECK-DAG: %[[ZEROS:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<3xf32>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK-NOT: <65536x{{[a-z]}}
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %[[ZERO]], %[[TOTAL:.*]] = %[[ZEROS]])
// CHECK: stablehlo.compare LT, %[[I]], %[[TRIPS]], SIGNED
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %[[TILE]] : tensor<i32>
// CHECK: %[[A_TILE:.*]] = stablehlo.dynamic_slice %[[A]], %[[START]], %[[ZERO]], sizes = [2048, 4] : {{.*}} -> tensor<2048x4xbf16>
// CHECK: %[[DOT:.*]] = stablehlo.dot_general %[[A_TILE]], %[[W]], contracting_dims = [1] x [0] : {{.*}} -> tensor<2048xbf16>
// CHECK: %[[SIGMOID:.*]] = stablehlo.logistic %[[DOT]] : tensor<2048xbf16>
// CHECK: %[[V_TILE:.*]] = stablehlo.dynamic_slice %[[V]], %[[START]], %[[ZERO]], sizes = [2048, 3] : {{.*}} -> tensor<2048x3xbf16>
// CHECK: %[[DOT2:.*]] = stablehlo.dot_general %[[SIGMOID]], %[[V_TILE]], contracting_dims = [0] x [0] : {{.*}} -> tensor<3xf32>
// CHECK: %[[SUM:.*]] = stablehlo.add %[[TOTAL]], %[[DOT2]] : tensor<3xf32>
// CHECK: stablehlo.return %{{.*}}, %[[SUM]]
// CHECK: %[[CONVERTED:.*]] = stablehlo.convert %[[LOOP]]#1 : {{.*}} -> tensor<3xbf16>
// CHECK-NOT: <65536x{{[a-z]}}
// CHECK: return %[[CONVERTED]]

func.func @main(%a: tensor<65536x4xbf16>, %w: tensor<4xbf16>, %v: tensor<65536x3xbf16>) -> tensor<3xbf16> {
  %0 = stablehlo.dot_general %a, %w, contracting_dims = [1] x [0] : (tensor<65536x4xbf16>, tensor<4xbf16>) -> tensor<65536xbf16>
  %1 = stablehlo.logistic %0 : tensor<65536xbf16>
  %2 = stablehlo.dot_general %1, %v, contracting_dims = [0] x [0] : (tensor<65536xbf16>, tensor<65536x3xbf16>) -> tensor<3xbf16>
  return %2 : tensor<3xbf16>
}
