// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB --quiet | filecheck %s

// What a step makes of rows and of those before them, around the ends, is written over the rows. A tile would find new rows
// before its own: so the old ones are carried, and what the next tile reads is read ahead, from what has been written to.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[U:[^:]*]]: tensor<512x64xf32>, %[[W:[^:]*]]: tensor<64x64xf32>
// CHECK: stablehlo.while({{.*}}, %[[X:.*]] = %[[U]])
// CHECK: %[[FIRST:.*]] = stablehlo.slice %[[X]] [0:64, 0:64]
// CHECK: %[[END:.*]] = stablehlo.slice %[[X]] [511:512, 0:64]
// CHECK: %[[BEGIN:.*]] = stablehlo.concatenate %[[END]], %[[FIRST]], dim = 0
// CHECK: %[[LOOP:.*]]:3 = stablehlo.while(%[[I:.*]] = %{{.*}}, %[[NEAR:.*]] = %[[BEGIN]], %[[OUT:.*]] = %[[X]])
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]]
// CHECK: %[[BEFORE:.*]] = stablehlo.slice %[[NEAR]] [0:64, 0:64]
// CHECK: %[[PRODUCT:.*]] = stablehlo.dot_general %[[BEFORE]], %[[W]]
// CHECK: %[[OWN:.*]] = stablehlo.slice %[[NEAR]] [1:65, 0:64]
// CHECK: %[[TILE:.*]] = stablehlo.add %[[OWN]], %[[PRODUCT]]
// CHECK: %[[WRITTEN:.*]] = stablehlo.dynamic_update_slice %[[OUT]], %[[TILE]], %[[START]]
// CHECK: %[[NEXT:.*]] = stablehlo.dynamic_slice %[[WRITTEN]], %{{.*}}, sizes = [64, 64]
// CHECK: %[[KEPT:.*]] = stablehlo.slice %[[NEAR]] [64:65, 0:64]
// CHECK: %[[AHEAD:.*]] = stablehlo.concatenate %[[KEPT]], %[[NEXT]], dim = 0
// CHECK: stablehlo.return %{{.*}}, %[[AHEAD]], %[[WRITTEN]]
// CHECK: stablehlo.return %{{.*}}, %[[LOOP]]#2
// CHECK-NOT: 511x64xf32

func.func @main(%u: tensor<512x64xf32>, %w: tensor<64x64xf32>) -> tensor<512x64xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %steps = stablehlo.constant dense<9> : tensor<i32>
  %0:2 = stablehlo.while(%i = %zero, %x = %u) : tensor<i32>, tensor<512x64xf32>
  cond {
    %1 = stablehlo.compare LT, %i, %steps, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %last = stablehlo.slice %x [511:512, 0:64] : (tensor<512x64xf32>) -> tensor<1x64xf32>
    %others = stablehlo.slice %x [0:511, 0:64] : (tensor<512x64xf32>) -> tensor<511x64xf32>
    %roll = stablehlo.concatenate %last, %others, dim = 0 : (tensor<1x64xf32>, tensor<511x64xf32>) -> tensor<512x64xf32>
    %2 = stablehlo.dot_general %roll, %w, contracting_dims = [1] x [0] : (tensor<512x64xf32>, tensor<64x64xf32>) -> tensor<512x64xf32>
    %3 = stablehlo.add %x, %2 : tensor<512x64xf32>
    %next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %next, %3 : tensor<i32>, tensor<512x64xf32>
  }
  return %0#1 : tensor<512x64xf32>
}
