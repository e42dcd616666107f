// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// A mean and a variance in one loop: the squares are those of what is above and below the mean so far, and those of the
// tiles before are moved to it. The first tile has none before it.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[Q:[^:]*]]: tensor<4xf32>, %[[K:[^:]*]]: tensor<65536x4xf32>
// CHECK-DAG: %[[TILE:.*]] = stablehlo.constant dense<1024> : tensor<i32>
// CHECK-DAG: %[[ALL:.*]] = stablehlo.constant dense<6.553600e+04> : tensor<f32>
// CHECK-DAG: %[[ZERO_F:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<f32>
// CHECK-DAG: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK-NOT: <65536x{{[a-z]}}
// CHECK: %[[LOOP:.*]]:3 = stablehlo.while(%[[I:.*]] = %[[ZERO]], %[[SUM:.*]] = %[[ZERO_F]], %[[SQUARES:.*]] = %[[ZERO_F]])
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %[[TILE]] : tensor<i32>
// CHECK: %[[SCORES:.*]] = stablehlo.dot_general %{{.*}}, %[[Q]], contracting_dims = [1] x [0] : {{.*}} -> tensor<1024xf32>
// CHECK: %[[PART:.*]] = stablehlo.reduce(%[[SCORES]] init: %[[ZERO_F]]) applies stablehlo.add
// CHECK: %[[TOTAL:.*]] = stablehlo.add %[[SUM]], %[[PART]] : tensor<f32>
// CHECK: %[[END:.*]] = stablehlo.add %[[START]], %[[TILE]] : tensor<i32>
// CHECK: %[[BEFORE:.*]] = stablehlo.convert %[[START]] : (tensor<i32>) -> tensor<f32>
// CHECK: %[[OLD:.*]] = stablehlo.divide %{{.*}}, %[[ALL]] : tensor<f32>
// CHECK: %[[COUNT:.*]] = stablehlo.convert %[[END]] : (tensor<i32>) -> tensor<f32>
// CHECK: %[[SOME:.*]] = stablehlo.divide %[[TOTAL]], %[[COUNT]] : tensor<f32>
// CHECK: %[[AS_ALL:.*]] = stablehlo.multiply %[[SOME]], %[[ALL]] : tensor<f32>
// CHECK: %[[NEW:.*]] = stablehlo.divide %[[AS_ALL]], %[[ALL]] : tensor<f32>
// CHECK: %[[FIRST:.*]] = stablehlo.compare EQ, %[[START]], %[[ZERO]], SIGNED
// CHECK: %[[FROM:.*]] = stablehlo.select %[[FIRST]], %[[NEW]], %[[OLD]]
// CHECK: %[[SPREAD:.*]] = stablehlo.broadcast_in_dim %[[NEW]], dims = [] : {{.*}} -> tensor<1024xf32>
// CHECK: %[[APART:.*]] = stablehlo.subtract %[[SCORES]], %[[SPREAD]] : tensor<1024xf32>
// CHECK: %[[SQUARE:.*]] = stablehlo.multiply %[[APART]], %[[APART]] : tensor<1024xf32>
// CHECK: %[[OF_TILE:.*]] = stablehlo.reduce(%[[SQUARE]] init: %[[ZERO_F]]) applies stablehlo.add
// CHECK: %[[MOVED:.*]] = stablehlo.subtract %[[FROM]], %[[NEW]] : tensor<f32>
// CHECK: %[[MORE:.*]] = stablehlo.multiply %{{.*}}, %{{.*}} : tensor<f32>
// CHECK: %[[ABOUT:.*]] = stablehlo.add %[[SQUARES]], %{{.*}} : tensor<f32>
// CHECK: %[[AFTER:.*]] = stablehlo.add %[[ABOUT]], %[[OF_TILE]] : tensor<f32>
// CHECK: stablehlo.return %{{.*}}, %[[TOTAL]], %[[AFTER]]
// CHECK-NOT: stablehlo.while
// CHECK: stablehlo.divide %[[LOOP]]#2, %[[ALL]] : tensor<f32>

func.func @main(%q: tensor<4xf32>, %k: tensor<65536x4xf32>) -> tensor<f32> {
  %0 = stablehlo.dot_general %k, %q, contracting_dims = [1] x [0] : (tensor<65536x4xf32>, tensor<4xf32>) -> tensor<65536xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<65536xf32>, tensor<f32>) -> tensor<f32>
  %count = stablehlo.constant dense<65536.0> : tensor<f32>
  %2 = stablehlo.divide %1, %count : tensor<f32>
  %3 = stablehlo.broadcast_in_dim %2, dims = [] : (tensor<f32>) -> tensor<65536xf32>
  %4 = stablehlo.subtract %0, %3 : tensor<65536xf32>
  %5 = stablehlo.multiply %4, %4 : tensor<65536xf32>
  %6 = stablehlo.reduce(%5 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<65536xf32>, tensor<f32>) -> tensor<f32>
  %7 = stablehlo.divide %6, %count : tensor<f32>
  return %7 : tensor<f32>
}
