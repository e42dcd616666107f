// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// A loop of the program adds up products as large as their sum: they are added slice by slice, in the memory of the sum.

// CHECK: stablehlo.while(%{{.*}} = %{{.*}}, %[[SUM:.*]] = %{{.*}}) : tensor<i32>, tensor<512x256xf32>
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %{{.*}}, %[[SO_FAR:.*]] = %[[SUM]]) : tensor<i32>, tensor<512x256xf32>
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %{{.*}} : tensor<i32>
// CHECK: %[[DOT:.*]] = stablehlo.dot_general {{.*}} -> tensor<16x256xf32>
// CHECK: %[[BEFORE:.*]] = stablehlo.dynamic_slice %[[SO_FAR]], %[[START]]
// CHECK: %[[ADDED:.*]] = stablehlo.add %[[BEFORE]], %[[DOT]]
// CHECK: %[[AFTER:.*]] = stablehlo.dynamic_update_slice %[[SO_FAR]], %[[ADDED]], %[[START]]
// CHECK: stablehlo.return %{{.*}}, %[[AFTER]]
// CHECK: stablehlo.return %{{.*}}, %[[LOOP]]#1

func.func @main(%x: tensor<6x32x512xf32>, %y: tensor<6x32x256xf32>) -> tensor<512x256xf32> {
  %i0 = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %last = stablehlo.constant dense<6> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<512x256xf32>
  %loop:2 = stablehlo.while(%i = %i0, %sum = %zeros) : tensor<i32>, tensor<512x256xf32>
    cond {
      %go = stablehlo.compare LT, %i, %last : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %a0 = stablehlo.dynamic_slice %x, %i, %i0, %i0, sizes = [1, 32, 512] : (tensor<6x32x512xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x32x512xf32>
      %a = stablehlo.reshape %a0 : (tensor<1x32x512xf32>) -> tensor<32x512xf32>
      %b0 = stablehlo.dynamic_slice %y, %i, %i0, %i0, sizes = [1, 32, 256] : (tensor<6x32x256xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x32x256xf32>
      %b = stablehlo.reshape %b0 : (tensor<1x32x256xf32>) -> tensor<32x256xf32>
      %0 = stablehlo.dot_general %a, %b, contracting_dims = [0] x [0] : (tensor<32x512xf32>, tensor<32x256xf32>) -> tensor<512x256xf32>
      %1 = stablehlo.add %sum, %0 : tensor<512x256xf32>
      %next = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %next, %1 : tensor<i32>, tensor<512x256xf32>
    }
  return %loop#1 : tensor<512x256xf32>
}
