// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// A sum of bf16 tile by tile is kept in f32 and converted once, at the end.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[X:[^:]*]]: tensor<65536xbf16>
// CHECK-DAG: %[[C:.*]] = stablehlo.constant dense<3.000000e+00> : tensor<4096xbf16>
// CHECK-DAG: %[[TILE:.*]] = stablehlo.constant dense<4096> : tensor<i32>
// CHECK-DAG: %[[TRIPS:.*]] = stablehlo.constant dense<16> : tensor<i32>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK-DAG: %[[ZERO_F:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
// CHECK: %[[CONVERTED:.*]] = stablehlo.convert %[[ZERO_F]] : {{.*}} -> tensor<f32>
// CHECK-NOT: <65536x{{[a-z]}}
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %[[ZERO]], %[[TOTAL:.*]] = %[[CONVERTED]])
// CHECK: stablehlo.compare LT, %[[I]], %[[TRIPS]], SIGNED
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %[[TILE]] : tensor<i32>
// CHECK: %[[X_TILE:.*]] = stablehlo.dynamic_slice %[[X]], %[[START]], sizes = [4096] : {{.*}} -> tensor<4096xbf16>
// CHECK: %[[COMPARED:.*]] = stablehlo.compare GT, %[[X_TILE]], %[[C]] : {{.*}} -> tensor<4096xi1>
// CHECK: %[[CONVERTED2:.*]] = stablehlo.convert %[[COMPARED]] : {{.*}} -> tensor<4096xbf16>
// CHECK: %[[CONVERTED3:.*]] = stablehlo.convert %[[CONVERTED2]] : {{.*}} -> tensor<4096xf32>
// CHECK: %[[REDUCE:.*]] = stablehlo.reduce(%[[CONVERTED3]] init: %[[CONVERTED]]) applies stablehlo.add across dimensions = [0] : {{.*}} -> tensor<f32>
// CHECK: %[[SUM:.*]] = stablehlo.add %[[TOTAL]], %[[REDUCE]] : tensor<f32>
// CHECK: stablehlo.return %{{.*}}, %[[SUM]]
// CHECK: %[[CONVERTED4:.*]] = stablehlo.convert %[[LOOP]]#1 : {{.*}} -> tensor<bf16>
// CHECK-NOT: <65536x{{[a-z]}}
// CHECK: return %[[CONVERTED4]]

func.func @main(%x: tensor<65536xbf16>) -> tensor<bf16> {
  %far = stablehlo.constant dense<3.0> : tensor<65536xbf16>
  %0 = stablehlo.compare GT, %x, %far : (tensor<65536xbf16>, tensor<65536xbf16>) -> tensor<65536xi1>
  %1 = stablehlo.convert %0 : (tensor<65536xi1>) -> tensor<65536xbf16>
  %zero = stablehlo.constant dense<0.0> : tensor<bf16>
  %2 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<65536xbf16>, tensor<bf16>) -> tensor<bf16>
  return %2 : tensor<bf16>
}
