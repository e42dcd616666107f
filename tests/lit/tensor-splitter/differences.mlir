// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB --quiet | filecheck %s

// Three steps of differences in one loop, with tiles that overlap: a tile of 5714 elements reads four more, of which each
// step leaves out some. What the pad puts beyond the ends is put there where it is read. Results that are one and two
// elements shorter are written up to their own ends: the last element of the sum has a tile of its own.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[U:[^:]*]]: tensor<40000xf32>
// CHECK-DAG: %[[ABOVE:.*]] = stablehlo.constant dense<40001> : tensor<5718xi32>
// CHECK-DAG: %[[BELOW:.*]] = stablehlo.constant dense<0> : tensor<5718xi32>
// CHECK: %[[LOOP:.*]]:3 = stablehlo.while(%[[I:.*]] = %{{.*}}, %[[SUM:.*]] = %{{.*}}, %[[OUT:.*]] = %{{.*}})
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %{{.*}} : tensor<i32>
// CHECK: stablehlo.dynamic_slice %[[U]], %{{.*}}, sizes = [5718]
// CHECK: %[[PLACE:.*]] = stablehlo.broadcast_in_dim %[[START]]
// CHECK: %[[AT:.*]] = stablehlo.add %{{.*}}, %[[PLACE]] : tensor<5718xi32>
// CHECK-DAG: %[[UNDER:.*]] = stablehlo.compare LT, %[[AT]], %[[ABOVE]]
// CHECK-DAG: %[[OVER:.*]] = stablehlo.compare LT, %[[BELOW]], %[[AT]]
// CHECK: stablehlo.and %[[UNDER]], %[[OVER]]
// CHECK: %[[PADDED:.*]] = stablehlo.select {{.*}} : tensor<5718xi1>, tensor<5718xf32>
// CHECK-DAG: stablehlo.slice %[[PADDED]] [2:5718]
// CHECK-DAG: stablehlo.slice %[[PADDED]] [0:5716]
// CHECK: %[[FLUX:.*]] = stablehlo.tanh {{.*}} : tensor<5716xf32>
// CHECK-DAG: stablehlo.slice %[[FLUX]] [1:5716]
// CHECK-DAG: stablehlo.slice %[[FLUX]] [0:5715]
// CHECK: %[[BEND:.*]] = stablehlo.tanh {{.*}} : tensor<5715xf32>
// CHECK: %[[OWN:.*]] = stablehlo.slice %[[BEND]] [0:5714]
// CHECK: %[[PART:.*]] = stablehlo.reduce(%[[OWN]]
// CHECK: stablehlo.add %[[SUM]], %[[PART]] : tensor<f32>
// CHECK: stablehlo.slice %[[BEND]] [1:5715]
// CHECK: %[[TILE:.*]] = stablehlo.add {{.*}} : tensor<5714xf32>
// CHECK: stablehlo.dynamic_update_slice %[[OUT]], %[[TILE]], %[[START]]
// CHECK-NOT: 40002xf32
// CHECK: %[[LAST:.*]] = stablehlo.reduce{{.*}} : (tensor<1xf32>, tensor<f32>) -> tensor<f32>
// CHECK: %[[TOTAL:.*]] = stablehlo.add %[[LOOP]]#1, %[[LAST]]
// CHECK: return %[[LOOP]]#2, %[[TOTAL]]

func.func @main(%u: tensor<40000xf32>) -> (tensor<39998xf32>, tensor<f32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %p = stablehlo.pad %u, %zero, low = [1], high = [1], interior = [0] : (tensor<40000xf32>, tensor<f32>) -> tensor<40002xf32>
  %below = stablehlo.slice %p [2:40002] : (tensor<40002xf32>) -> tensor<40000xf32>
  %above = stablehlo.slice %p [0:40000] : (tensor<40002xf32>) -> tensor<40000xf32>
  %0 = stablehlo.subtract %below, %above : tensor<40000xf32>
  %flux = stablehlo.tanh %0 : tensor<40000xf32>
  %1 = stablehlo.slice %flux [1:40000] : (tensor<40000xf32>) -> tensor<39999xf32>
  %2 = stablehlo.slice %flux [0:39999] : (tensor<40000xf32>) -> tensor<39999xf32>
  %3 = stablehlo.subtract %1, %2 : tensor<39999xf32>
  %bend = stablehlo.tanh %3 : tensor<39999xf32>
  %sum = stablehlo.reduce(%bend init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<39999xf32>, tensor<f32>) -> tensor<f32>
  %4 = stablehlo.slice %bend [1:39999] : (tensor<39999xf32>) -> tensor<39998xf32>
  %5 = stablehlo.slice %bend [0:39998] : (tensor<39999xf32>) -> tensor<39998xf32>
  %6 = stablehlo.add %4, %5 : tensor<39998xf32>
  return %6, %sum : tensor<39998xf32>, tensor<f32>
}
