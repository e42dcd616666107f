// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB --no-reassociate | filecheck %s

// A constant of different numbers is sliced where it stands.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[B:[^:]*]]: tensor<1024xf32>, %[[V:[^:]*]]: tensor<1024xf32>
// CHECK-DAG: %[[TILE:.*]] = stablehlo.constant dense<4> : tensor<i32>
// CHECK-DAG: %[[TRIPS:.*]] = stablehlo.constant dense<16> : tensor<i32>
// CHECK-DAG: %[[C:.*]] = stablehlo.constant dense<{{.*}}> : tensor<64xi8>
// CHECK-DAG: %[[ZEROS:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<64xf32>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK-NOT: 64x1024x
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %[[ZERO]], %[[OUT:.*]] = %[[ZEROS]])
// CHECK: stablehlo.compare LT, %[[I]], %[[TRIPS]], SIGNED
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %[[TILE]] : tensor<i32>
// CHECK: %[[C_TILE:.*]] = stablehlo.dynamic_slice %[[C]], %[[START]], sizes = [4] : {{.*}} -> tensor<4xi8>
// CHECK: %[[CONVERTED:.*]] = stablehlo.convert %[[C_TILE]] : {{.*}} -> tensor<4xf32>
// CHECK: %[[DOT:.*]] = stablehlo.dot_general %[[CONVERTED]], %[[B]], contracting_dims = [] x [] : {{.*}} -> tensor<4x1024xf32>
// CHECK: %[[COSINE:.*]] = stablehlo.cosine %[[DOT]] : tensor<4x1024xf32>
// CHECK: %[[DOT2:.*]] = stablehlo.dot_general %[[COSINE]], %[[V]], contracting_dims = [1] x [0] : {{.*}} -> tensor<4xf32>
// CHECK: %[[WRITTEN:.*]] = stablehlo.dynamic_update_slice %[[OUT]], %[[DOT2]], %[[START]] : {{.*}} -> tensor<64xf32>
// CHECK: stablehlo.return %{{.*}}, %[[WRITTEN]]
// CHECK-NOT: 64x1024x
// CHECK: return %[[LOOP]]#1

func.func @main(%b: tensor<1024xf32>, %v: tensor<1024xf32>) -> tensor<64xf32> {
  %table = stablehlo.constant dense<"0x030A11181F262D343B020910171E252C333A01080F161D242B323900070E151C232A31383F060D141B222930373E050C131A21282F363D040B121920272E353C"> : tensor<64xi8>
  %0 = stablehlo.convert %table : (tensor<64xi8>) -> tensor<64xf32>
  %1 = stablehlo.dot_general %0, %b, contracting_dims = [] x [] : (tensor<64xf32>, tensor<1024xf32>) -> tensor<64x1024xf32>
  %2 = stablehlo.cosine %1 : tensor<64x1024xf32>
  %3 = stablehlo.dot_general %2, %v, contracting_dims = [1] x [0] : (tensor<64x1024xf32>, tensor<1024xf32>) -> tensor<64xf32>
  return %3 : tensor<64xf32>
}
